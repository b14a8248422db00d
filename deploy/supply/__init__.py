"""What is shipped besides our own code: licences, notices, bill of materials"""
